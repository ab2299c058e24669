import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/** Builds a graph of objects, walks it, replaces parts of it, and prints checksums: {@code Graph NODES ROUNDS}. */
public final class Graph {
    private static final class Node {
        final long identity;
        final byte[] payload;
        final Node[] neighbours = new Node[4];

        Node(long identity, SplittableRandom random) {
            this.identity = identity;
            payload = new byte[256 + random.nextInt(1536)];
            random.nextBytes(payload);
        }

        long checksum() {
            long sum = identity;
            for (byte value : payload) {
                sum = sum * 31 + value;
            }
            return sum;
        }
    }

    private Graph() {}

    private static long walk(Node start, int steps) {
        long sum = 0;
        Node node = start;
        for (int step = 0; step < steps; step++) {
            long checksum = node.checksum();
            sum = sum * 1_000_003 + checksum;
            node = node.neighbours[(int) Long.remainderUnsigned(sum, node.neighbours.length)];
        }
        return sum;
    }

    private static void connect(List<Node> nodes, Node node, SplittableRandom random) {
        for (int edge = 0; edge < node.neighbours.length; edge++) {
            node.neighbours[edge] = nodes.get(random.nextInt(nodes.size()));
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        SplittableRandom random = new SplittableRandom(7);
        List<Node> nodes = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            nodes.add(new Node(number, random));
        }
        for (Node node : nodes) {
            connect(nodes, node, random);
        }
        System.out.println("walk " + walk(nodes.get(0), count));

        // Garbage among what stays, so that collectors move objects.
        for (int round = 0; round < rounds; round++) {
            for (int change = 0; change < count / 8; change++) {
                int place = random.nextInt(count);
                Node fresh = new Node(place, random);
                connect(nodes, fresh, random);
                nodes.set(place, fresh);
            }
            System.gc();
            System.out.println("round " + round + " " + walk(nodes.get(round), count / 2));
        }

        Map<Long, Integer> index = new HashMap<>();
        for (Node node : nodes) {
            index.merge(node.checksum() & 0xffff, 1, Integer::sum);
        }
        long sum = 0;
        for (Map.Entry<Long, Integer> entry : index.entrySet()) {
            sum += entry.getKey() * entry.getValue();
        }
        System.out.println("index " + index.size() + " " + sum);

        long[] results = new long[4];
        Thread[] walkers = new Thread[results.length];
        for (int number = 0; number < walkers.length; number++) {
            int own = number;
            walkers[number] = new Thread(() -> results[own] = walk(nodes.get(own * 1000), count / 4));
            walkers[number].start();
        }
        for (Thread walker : walkers) {
            walker.join();
        }
        for (long result : results) {
            System.out.println("walker " + result);
        }
    }
}
