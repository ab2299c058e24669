# Fills a hash, looks entries up and changes them at random, and prints a checksum: `hash.pl ENTRIES`.
use strict;
use warnings;

my $entries = shift;
my %table;
$table{sprintf("key-%08d", $_)} = [$_, "value-" . $_ * 7919] for 0 .. $entries - 1;
my ($state, $checksum) = (1, 0);
for (1 .. $entries) {
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    my $entry = $table{sprintf("key-%08d", ($state >> 8) % $entries)};
    $entry->[0]++;
    $checksum = ($checksum * 31 + $entry->[0] + length($entry->[1])) % 2**48;
}
print "hash ", scalar(keys %table), " $checksum\n";
