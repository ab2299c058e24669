# Children that read some of what is their parent's, and then become other programs: three at a time, each
# while its pager pages.
use strict;
use warnings;

my @kept = map { "kept $_ " x 8 } 1 .. 100_000;
my ($bad, %running) = (0);
for (1 .. 80) {
    my $child = fork() // die "no child: $!";
    if ($child == 0) {
        my $length = 0;
        $length += length for @kept[0 .. 20_000];
        exec 'sh', '-c', 'seq 20000 | sort -S 30M | md5sum >/dev/null';
    }
    $running{$child} = 1;
    if (keys %running >= 3) {
        my $ended = wait;
        $bad++ if $?;
        delete $running{$ended};
    }
}
while (wait > 0) {
    $bad++ if $?;
}
$bad += grep { $kept[ $_ - 1 ] ne "kept $_ " x 8 } 1 .. 100_000;
print "$bad wrong\n";
