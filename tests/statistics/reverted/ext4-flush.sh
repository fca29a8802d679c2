#!/bin/sh
# Sectors of a file are overwritten in place: fdatasync finds nothing but data to write.
set -e
seq 1 2000 | head -c 4096 > records
sync records
sync .
promise synced records
for round in 1 2 3 4 5 6; do
    seq $((round * 7777)) $((round * 7777 + 900)) | head -c 512 | dd of=records bs=512 seek=$((round % 4)) conv=notrunc 2> /dev/null
    sync -d records
    promise synced records
done
