import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;

/**
 * Follows a list of objects again and again, with a collection of garbage after each time or without: {@code Collected OBJECTS ROUNDS COLLECTIONS}. Prints
 * sums, and then the threads that there are: "thread NUMBER NAME", the one that followed the list as "follower".
 */
public final class Collected {
    private static final class Node {
        Node next;
        long value;
        final byte[] rest = new byte[2000];
    }

    private Collected() {}

    /** What collections shuffle no further: objects in another order than that of their addresses. */
    private static Node list(int count) {
        SplittableRandom random = new SplittableRandom(11);
        Node[] nodes = new Node[count];
        for (int number = 0; number < count; number++) {
            nodes[number] = new Node();
            nodes[number].value = random.nextLong();
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

    public static void main(String[] arguments) throws Exception {
        Node first = list(Integer.parseInt(arguments[0]));
        // Whatever made the list is moved once in both cases.
        System.gc();
        for (int round = Integer.parseInt(arguments[1]); round > 0; round--) {
            long sum = 0;
            for (Node node = first; node != null; node = node.next) {
                sum = sum * 31 + node.value;
            }
            System.out.println(round + " " + sum);
            for (int count = Integer.parseInt(arguments[2]); count > 0; count--) {
                System.gc();
            }
        }
        String own = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                String number = thread.getFileName().toString();
                String name;
                try {
                    name = Files.readString(thread.resolve("comm")).trim();
                } catch (IOException error) {
                    // A compiler's thread, which ends when there is nothing to do.
                    continue;
                }
                System.out.println("thread " + number + " " + (number.equals(own) ? "follower" : name));
            }
        }
    }
}
