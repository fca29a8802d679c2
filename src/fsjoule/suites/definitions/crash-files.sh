#!/bin/sh
# crash-files.sh ROUNDS: what applications do with files they must not lose, in the current directory. Each is synced as
# fsync(2) asks for (busybox's sync is fsync), and promised afterwards.
set -e
text() { seq $(($1 * 7919)) $(($1 * 7919 + $2)); }
round=0
mkdir spool
sync .
while [ $round -lt "$1" ]; do
    round=$((round + 1))
    # A new file.
    text $round $((100 + round * 331 % 3000)) > spool/new-$round
    sync spool/new-$round
    sync spool
    promise synced spool/new-$round
    # A configuration is replaced.
    text $((round + 1000)) $((50 + round * 97 % 500)) > config.tmp
    sync config.tmp
    mv config.tmp config
    sync .
    promise synced config
    # A log grows, and a file that nobody syncs.
    text $round 20 >> log
    text $round 500 > unsynced-$round
    sync log
    [ $round -gt 1 ] || sync .
    promise synced log
    # A record of one sector is overwritten in place: only data changes.
    text $round 512 | head -c 512 | dd of=records bs=512 seek=$((round % 2)) conv=notrunc 2> /dev/null
    if [ $round -gt 2 ]; then sync -d records; else sync records; fi
    [ $round -gt 1 ] || sync .
    promise synced records
    # An old file goes.
    if [ $round -gt 3 ]; then
        rm spool/new-$((round - 3))
        sync spool
        promise gone spool/new-$((round - 3))
    fi
done
