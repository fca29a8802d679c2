#!/bin/sh
# A file is replaced without an fsync of the new one, which ext4 is used to forgive.
set -e
for round in 1 2 3; do
    seq $((round * 777)) $((round * 777 + 900)) > config.tmp
    mv config.tmp config
    sync .
    promise synced config
done
