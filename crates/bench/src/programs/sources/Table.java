import java.util.HashMap;

/** Fills a HashMap, looks entries up and changes them at random, and prints a checksum: `Table ENTRIES`. */
class Table {
    public static void main(String[] arguments) {
        int entries = Integer.parseInt(arguments[0]);
        HashMap<Integer, long[]> table = new HashMap<>();
        for (int number = 0; number < entries; number++) {
            table.put(number, new long[] {number, number * 7919L});
        }
        int state = 1;
        long checksum = 0;
        for (int turn = 0; turn < entries; turn++) {
            state = (state * 1103515245 + 12345) & 0x7fffffff;
            long[] entry = table.get((state >> 8) % entries);
            entry[0]++;
            checksum = checksum * 31 + entry[0] + entry[1];
        }
        System.out.println("table " + table.size() + " " + checksum);
    }
}
