import java.util.ArrayDeque;
import java.util.SplittableRandom;

/**
 * Visits a graph of objects in breadth from several starts: {@code Breadth BYTES STARTS}. Half of the edges lead to vertices that were made at about the same
 * time, half anywhere.
 */
public final class Breadth {
    private static final int EDGES = 8;
    private static final int NEAR = 64;
    private static final int PROPERTY_BYTES = 488;
    private static final int VERTEX_BYTES = 32 + 16 + 4 * EDGES + 16 + PROPERTY_BYTES + 4;

    private static final class Vertex {
        final Vertex[] neighbours = new Vertex[EDGES];
        final byte[] properties = new byte[PROPERTY_BYTES];
        int visit;
        int depth;
    }

    private Breadth() {}

    private static long visit(Vertex start, int visit) {
        ArrayDeque<Vertex> waiting = new ArrayDeque<>();
        start.visit = visit;
        start.depth = 0;
        waiting.add(start);
        long sum = 0;
        while (!waiting.isEmpty()) {
            Vertex vertex = waiting.remove();
            sum = sum * 31 + vertex.depth + vertex.properties[vertex.depth];
            for (Vertex neighbour : vertex.neighbours) {
                if (neighbour.visit != visit) {
                    neighbour.visit = visit;
                    neighbour.depth = vertex.depth + 1;
                    waiting.add(neighbour);
                }
            }
        }
        return sum;
    }

    public static void main(String[] arguments) {
        int count = (int) (Long.parseLong(arguments[0]) / VERTEX_BYTES);
        SplittableRandom random = new SplittableRandom(3);
        Vertex[] vertices = new Vertex[count];
        for (int number = 0; number < count; number++) {
            vertices[number] = new Vertex();
            random.nextBytes(vertices[number].properties);
        }
        for (int number = 0; number < count; number++) {
            for (int edge = 0; edge < EDGES; edge++) {
                int near = Math.floorMod(number + random.nextInt(2 * NEAR) - NEAR, count);
                vertices[number].neighbours[edge] = vertices[edge % 2 == 0 ? near : random.nextInt(count)];
            }
        }
        for (int start = 1; start <= Integer.parseInt(arguments[1]); start++) {
            System.out.println(start + " " + visit(vertices[random.nextInt(count)], start));
        }
    }
}
