// Fills a Map, looks entries up and changes them at random, and prints a checksum: `map.js ENTRIES`.
const entries = Number(process.argv[2]);
const key = (number) => `key-${String(number).padStart(8, "0")}`;
const table = new Map();
for (let number = 0; number < entries; number++) table.set(key(number), [number, `value-${number * 7919}`]);
let state = 1;
let checksum = 0;
for (let turn = 0; turn < entries; turn++) {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  const entry = table.get(key((state >> 8) % entries));
  entry[0]++;
  checksum = (checksum * 31 + entry[0] + entry[1].length) % 2 ** 40;
}
console.log("map", table.size, checksum);
