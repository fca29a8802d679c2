#!/bin/sh
# crash-sqlite.sh ROWS JOURNAL: a database to which rows are added, each in a transaction of its own. A row is promised when
# its transaction is committed.
set -e
set_up="PRAGMA journal_mode=$2; PRAGMA synchronous=FULL;"
echo "$set_up CREATE TABLE log (id INTEGER PRIMARY KEY, text TEXT);" | sqlite3 data.db > /dev/null
row=0
while [ $row -lt "$1" ]; do
    row=$((row + 1))
    echo "PRAGMA synchronous=FULL; INSERT INTO log VALUES ($row, hex(zeroblob($((100 + row * 37 % 400)))));" | sqlite3 data.db
    promise holds rows "test \"\$(sqlite3 data.db 'SELECT count(*) FROM log')\" -ge $row"
done
promise holds whole "test \"\$(sqlite3 data.db 'PRAGMA integrity_check')\" = ok"
