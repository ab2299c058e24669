// Goroutines that build, change and check trees while garbage is collected: goroutines COUNT NODES ROUNDS.
// Prints a digest of all that they have. One that finds something else than it wrote ends the program with status 1.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"sync"
)

type node struct {
	key         uint64
	text        []byte
	left, right *node
}

// What a node of that key holds.
func content(key uint64) []byte {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], key)
	sum := sha256.Sum256(seed[:])
	text := make([]byte, 0, 256)
	for len(text) < 256 {
		text = append(text, sum[:]...)
	}
	return text
}

func insert(tree *node, key uint64) *node {
	if tree == nil {
		return &node{key: key, text: content(key)}
	}
	if key < tree.key {
		tree.left = insert(tree.left, key)
	} else {
		tree.right = insert(tree.right, key)
	}
	return tree
}

// Calls `visit` with each node, in the order of keys.
func walk(tree *node, visit func(*node)) {
	if tree != nil {
		walk(tree.left, visit)
		visit(tree)
		walk(tree.right, visit)
	}
}

func build(owner, round, nodes uint64) *node {
	var tree *node
	state := owner<<32 | round
	for range make([]struct{}, nodes) {
		state = state*6364136223846793005 + 1442695040888963407
		tree = insert(tree, state)
	}
	return tree
}

func work(owner, nodes, rounds uint64) (sum [32]byte) {
	digest := sha256.New()
	kept := build(owner, 0, nodes)
	for round := uint64(1); round <= rounds; round++ {
		// Garbage when the round has ended.
		build(owner, round, nodes/2)
		walk(kept, func(at *node) {
			if string(at.text) != string(content(at.key)) {
				fmt.Println("wrong", owner, round, at.key)
				os.Exit(1)
			}
			digest.Write(at.text)
			at.text = content(at.key)
		})
	}
	copy(sum[:], digest.Sum(nil))
	return sum
}

func number(at int) uint64 {
	value, err := strconv.ParseUint(os.Args[at], 10, 32)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	count, nodes, rounds := number(1), number(2), number(3)
	digests := make([][32]byte, count)
	var all sync.WaitGroup
	for owner := range digests {
		all.Add(1)
		go func(owner int) {
			defer all.Done()
			digests[owner] = work(uint64(owner), nodes, rounds)
		}(owner)
	}
	all.Wait()
	sum := sha256.New()
	for _, digest := range digests {
		sum.Write(digest[:])
	}
	fmt.Println(hex.EncodeToString(sum.Sum(nil)))
}
