#!/bin/sh
# New files, each of several clusters: fsync writes the FAT, too.
set -e
for round in 1 2 3 4 5 6; do
    seq $((round * 7777)) $((round * 7777 + 900)) > new-$round
    sync new-$round
    promise synced new-$round
done
