import java.util.SplittableRandom;

/** Follows a list of objects that are scattered over the heap, and prints sums: {@code References OBJECTS ROUNDS}. */
public final class References {
    /** 64 bytes with a header of 12. */
    private static final class Node {
        Node next;
        long value;
        long first;
        long second;
        long third;
        long fourth;
        int last;

        Node(long value) {
            this.value = value;
        }
    }

    private References() {}

    private static Node list(int count) {
        SplittableRandom random = new SplittableRandom(7);
        Node[] nodes = new Node[count];
        for (int number = 0; number < count; number++) {
            nodes[number] = new Node(random.nextLong());
        }
        for (int place = count - 1; place > 0; place--) {
            int other = random.nextInt(place + 1);
            Node node = nodes[place];
            nodes[place] = nodes[other];
            nodes[other] = node;
        }
        for (int place = 1; place < count; place++) {
            nodes[place - 1].next = nodes[place];
        }
        return nodes[0];
    }

    public static void main(String[] arguments) {
        Node first = list(Integer.parseInt(arguments[0]));
        for (int round = Integer.parseInt(arguments[1]); round > 0; round--) {
            long sum = 0;
            for (Node node = first; node != null; node = node.next) {
                sum = sum * 31 + node.value;
            }
            System.out.println(round + " " + sum);
        }
    }
}
