# Fills a hash, looks entries up and changes them at random, and prints a checksum: `hash.rb ENTRIES`.
entries = Integer(ARGV[0])
table = {}
entries.times { |number| table[format("key-%08d", number)] = [number, "value-#{number * 7919}"] }
state = 1
checksum = 0
entries.times do
  state = (state * 1_103_515_245 + 12_345) & 0x7fffffff
  entry = table[format("key-%08d", (state >> 8) % entries)]
  entry[0] += 1
  checksum = (checksum * 31 + entry[0] + entry[1].length) & 0xffffffffffff
end
puts "hash #{table.size} #{checksum}"
