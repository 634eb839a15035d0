# Keeps one private Postgres server for the process at the other end of its standard input: sh -c TEXT sh ROOT BIN.
# It takes one order a line, answers each with the exit status, and leaves what the programs said in ROOT/said.
# When the orders end, whether its owner closed them or was killed, it stops the server and removes ROOT.
# Orders run one after the other, so there is no moment at which a server is starting and nobody knows of it.
root=$1 bin=$2 data=$1/data

finish() {
	trap '' EXIT HUP INT TERM
	cd /
	if [ -f "$data/postmaster.pid" ]; then
		"$bin/pg_ctl" -D "$data" -m immediate -t 60 -w stop </dev/null >/dev/null 2>&1
	fi
	rm -rf "$root"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
trap '' PIPE # the owner may die before it hears the answer

while read -r order mode; do
	case $order in
	init)
		"$bin/initdb" -D "$data" -U postgres --pwfile="$root/password" --auth-local=trust --auth-host=scram-sha-256 \
			--encoding=UTF8 --no-locale --no-sync
		;;
	start) "$bin/pg_ctl" -D "$data" -l "$root/server.log" -t 60 -w start ;;
	limit) ulimit -S -f "$mode" ;; # in blocks of 512 bytes; servers that are started later have it
	stop) "$bin/pg_ctl" -D "$data" -m "$mode" -t 60 -w stop ;;
	*) false ;;
	esac </dev/null >"$root/said" 2>&1
	echo $?
done
