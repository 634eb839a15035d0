#!/bin/sh
# A worker without a line of Go:
#
#   export HOLDFAST_DB=tasks.db
#   holdfast submit thumbnail '{"path": "cat.png", "width": 120}'
#   holdfast worker thumbnail --exec ./thumbnail.sh
#
# The payload comes on standard input, the result goes to standard output, the exit code decides.
set -eu

payload=$(cat)
path=$(printf '%s' "$payload" | sed -n 's/.*"path": *"\([^"]*\)".*/\1/p')
width=$(printf '%s' "$payload" | sed -n 's/.*"width": *\([0-9]*\).*/\1/p')

if [ -z "$path" ] || [ -z "$width" ]; then
	echo "the payload needs a path and a width" >&2
	exit 65 # another attempt cannot help
fi
if [ ! -e "$path" ]; then
	echo "$path is not there yet" >&2
	exit 75 # put back, without spending an attempt
fi

# In real life: convert "$path" -resize "$width" "thumbs/$HOLDFAST_TASK_ID.png"
cp "$path" "$path.$width"
printf '{"thumbnail": "%s", "attempt": %s}\n' "$path.$width" "$HOLDFAST_ATTEMPT"
