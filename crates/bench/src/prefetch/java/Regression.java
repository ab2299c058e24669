import java.util.SplittableRandom;

/** Fits a line through points by many passes over them, each an object with an array: {@code Regression BYTES PASSES}. */
public final class Regression {
    private static final int FEATURES = 32;
    private static final int POINT_BYTES = 24 + 16 + 8 * FEATURES + 4;

    private static final class Point {
        final double[] features = new double[FEATURES];
        final double label;

        Point(double[] weights, SplittableRandom random) {
            double sum = 0;
            for (int at = 0; at < FEATURES; at++) {
                features[at] = random.nextInt(1000) / 1000.0 - 0.5;
                sum += features[at] * weights[at];
            }
            label = sum > 0 ? 1 : -1;
        }
    }

    private Regression() {}

    public static void main(String[] arguments) {
        int count = (int) (Long.parseLong(arguments[0]) / POINT_BYTES);
        SplittableRandom random = new SplittableRandom(5);
        double[] truth = new double[FEATURES];
        for (int at = 0; at < FEATURES; at++) {
            truth[at] = random.nextInt(1000) - 500;
        }
        Point[] points = new Point[count];
        for (int number = 0; number < count; number++) {
            points[number] = new Point(truth, random);
        }
        double[] weights = new double[FEATURES];
        for (int pass = Integer.parseInt(arguments[1]); pass > 0; pass--) {
            double[] gradient = new double[FEATURES];
            for (Point point : points) {
                double sum = 0;
                for (int at = 0; at < FEATURES; at++) {
                    sum += weights[at] * point.features[at];
                }
                double scale = (1 / (1 + StrictMath.exp(-point.label * sum)) - 1) * point.label;
                for (int at = 0; at < FEATURES; at++) {
                    gradient[at] += scale * point.features[at];
                }
            }
            double length = 0;
            for (int at = 0; at < FEATURES; at++) {
                weights[at] -= 10 * gradient[at] / count;
                length += weights[at] * weights[at];
            }
            System.out.println(pass + " " + length);
        }
    }
}
