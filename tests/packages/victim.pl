# A service that knows nothing of Farmem: fills memory, and reads all of it when it is asked to.
use strict;
use warnings;

my @rows = map { sprintf("row %09d ", $_) x 64 } 1 .. 80_000;
sub note { my ($name, $text) = @_; open(my $file, '>', "/run/victim/$name") or die; print $file $text; close($file); }

note('ready', '');
# It looks now and then, as services do.
select(undef, undef, undef, 0.1) until -e '/run/victim/read';
my $wrong = grep { $rows[$_ - 1] ne sprintf("row %09d ", $_) x 64 } 1 .. 80_000;
note('result', $wrong ? "$wrong wrong rows" : 'right');
sleep(600);
