import java.util.SplittableRandom;

/** Reads large arrays in order while another thread replaces parts of a graph, so that garbage is collected meanwhile: {@code Mixed NODES PASSES}. */
public final class Mixed {
    private static final class Node {
        final byte[] payload;
        Node left;
        Node right;

        Node(SplittableRandom random) {
            payload = new byte[100 + random.nextInt(300)];
            random.nextBytes(payload);
        }
    }

    private static volatile boolean hasEnded;

    private Mixed() {}

    private static void replace(Node[] nodes) {
        SplittableRandom random = new SplittableRandom(9);
        while (!hasEnded) {
            Node node = new Node(random);
            node.left = nodes[random.nextInt(nodes.length)];
            nodes[random.nextInt(nodes.length)] = node;
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[0]);
        int passes = Integer.parseInt(arguments[1]);
        SplittableRandom random = new SplittableRandom(5);
        Node[] nodes = new Node[count];
        for (int number = 0; number < count; number++) {
            nodes[number] = new Node(random);
        }
        for (Node node : nodes) {
            node.left = nodes[random.nextInt(count)];
            node.right = nodes[random.nextInt(count)];
        }
        double[][] rows = new double[count / 400][32768];
        for (double[] row : rows) {
            for (int column = 0; column < row.length; column++) {
                row[column] = random.nextInt(1000);
            }
        }
        Thread replacer = new Thread(() -> replace(nodes));
        replacer.start();
        double sum = 0;
        for (int pass = 0; pass < passes; pass++) {
            for (double[] row : rows) {
                for (double value : row) {
                    sum += value;
                }
            }
        }
        hasEnded = true;
        replacer.join();
        System.out.println("sum " + sum);
    }
}
