#!/bin/sh
# sqlite.sh insert|update ROWS JOURNAL: makes the database in the current directory, and the work in memory as SQL.
# Each statement is a transaction of its own; the rows have 100 characters, the same in every run.
set -e
what=$1 rows=$2 journal=$3
head="PRAGMA journal_mode=$journal; PRAGMA synchronous=FULL;"
values() {
    awk -v rows="$rows" -v what="$1" 'BEGIN {
        srand(1)
        for (i = 1; i <= rows; i++) {
            text = ""
            while (length(text) < 100) text = text sprintf("%06x", int(rand() * 16777216))
            text = substr(text, 1, 100)
            if (what == "update") printf "UPDATE log SET text = \047%s\047 WHERE id = %d;\n", text, 1 + int(rand() * rows)
            else printf "INSERT INTO log VALUES (%d, \047%s\047);\n", i, text
        }
    }'
}
{ echo "$head CREATE TABLE log (id INTEGER PRIMARY KEY, text TEXT);"; } | sqlite3 data.db
if [ "$what" = update ]; then { echo "BEGIN;"; values insert; echo "COMMIT;"; } | sqlite3 data.db; fi
{ echo "$head"; values "$what"; } > /tmp/fsjoule/work.sql
