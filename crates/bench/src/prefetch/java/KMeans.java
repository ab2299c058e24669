import java.util.SplittableRandom;

/** Finds the middles of clusters by many passes over points that lie in arrays of floats, block by block: {@code KMeans BYTES PASSES}. */
public final class KMeans {
    private static final int FEATURES = 16;
    private static final int CLUSTERS = 4;
    private static final int POINTS_OF_A_BLOCK = 4096;
    private static final int BLOCK_BYTES = 4 * FEATURES * POINTS_OF_A_BLOCK;

    private KMeans() {}

    private static int nearest(float[] block, int point, float[] middles) {
        int nearest = 0;
        float least = Float.MAX_VALUE;
        for (int cluster = 0; cluster < CLUSTERS; cluster++) {
            float distance = 0;
            for (int at = 0; at < FEATURES; at++) {
                float difference = block[point + at] - middles[cluster * FEATURES + at];
                distance += difference * difference;
            }
            if (distance < least) {
                least = distance;
                nearest = cluster;
            }
        }
        return nearest;
    }

    public static void main(String[] arguments) {
        SplittableRandom random = new SplittableRandom(7);
        float[][] blocks = new float[(int) (Long.parseLong(arguments[0]) / BLOCK_BYTES)][];
        for (int number = 0; number < blocks.length; number++) {
            blocks[number] = new float[FEATURES * POINTS_OF_A_BLOCK];
            for (int at = 0; at < blocks[number].length; at++) {
                blocks[number][at] = random.nextInt(1000) + 500 * (at / FEATURES % CLUSTERS);
            }
        }
        float[] middles = new float[CLUSTERS * FEATURES];
        for (int at = 0; at < middles.length; at++) {
            middles[at] = random.nextInt(2000);
        }
        for (int pass = Integer.parseInt(arguments[1]); pass > 0; pass--) {
            double[] sums = new double[CLUSTERS * FEATURES];
            long[] counts = new long[CLUSTERS];
            for (float[] block : blocks) {
                for (int point = 0; point < block.length; point += FEATURES) {
                    int cluster = nearest(block, point, middles);
                    counts[cluster]++;
                    for (int at = 0; at < FEATURES; at++) {
                        sums[cluster * FEATURES + at] += block[point + at];
                    }
                }
            }
            for (int at = 0; at < middles.length; at++) {
                if (counts[at / FEATURES] > 0) {
                    middles[at] = (float) (sums[at] / counts[at / FEATURES]);
                }
            }
            System.out.println(pass + " " + counts[0] + " " + middles[0]);
        }
    }
}
