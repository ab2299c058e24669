<?php
// Fills an array, looks entries up and changes them at random, and prints a checksum: `array.php ENTRIES`.
$entries = (int) $argv[1];
$table = [];
for ($number = 0; $number < $entries; $number++) {
    $table[sprintf("key-%08d", $number)] = [$number, "value-" . $number * 7919];
}
$state = 1;
$checksum = 0;
for ($turn = 0; $turn < $entries; $turn++) {
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    $key = sprintf("key-%08d", ($state >> 8) % $entries);
    $table[$key][0]++;
    $checksum = ($checksum * 31 + $table[$key][0] + strlen($table[$key][1])) & 0xffffffffffff;
}
echo "array ", count($table), " ", $checksum, "\n";
