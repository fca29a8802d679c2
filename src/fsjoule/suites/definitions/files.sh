#!/bin/sh
# files.sh KIB: files of 1, 2, 4, 8 and 17 KiB with random bytes, 50 in a directory, KIB in all, as an archive in memory.
set -e
rm -rf /tmp/fsjoule/files /tmp/fsjoule/files.tar
mkdir /tmp/fsjoule/files
cd /tmp/fsjoule/files
made=0 file=0
while [ $made -lt "$1" ]; do
    folder=d$((file / 50))
    [ $((file % 50)) -gt 0 ] || mkdir "$folder"
    case $((file % 5)) in 0) kib=1 ;; 1) kib=2 ;; 2) kib=4 ;; 3) kib=8 ;; *) kib=17 ;; esac
    dd if=/dev/urandom of="$folder/f$file" bs=1024 count=$kib 2> /dev/null
    made=$((made + kib)) file=$((file + 1))
done
cd /tmp/fsjoule
tar -cf files.tar files
rm -rf files
