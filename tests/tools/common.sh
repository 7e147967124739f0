# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# Sourced by the scripts: a directory of its own for each test, and a few words to say what is expected. $BUILD is the
# build tree, $HERE where the programs of these tests are. The last line of a script is: run_case "$@"

set -eu
unset LD_LIBRARY_PATH LD_PRELOAD UROCE_DEVICES UROCE_EXPLAIN UROCE_MEMORY UROCE_PROFILE UROCE_RUNTIME_DIR UROCE_TIMING
uroce=$BUILD/bin/uroce
library=$(realpath "$BUILD/lib")/libibverbs.so.1

skip() {
	echo "skipped: $*"
	exit 77
}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

# same WHAT EXPECTED FOUND
same() {
	[ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"
}

# status EXPECTED COMMAND...: runs it; its output is left in out and err.
status() {
	expected=$1
	shift
	found=0
	"$@" >out 2>err </dev/null || found=$?
	[ "$found" = "$expected" ] && return
	cat out err
	fail "$*: expected status $expected, found $found"
}

# refused STATUS WORDS COMMAND...: nothing on stdout, and one line on stderr that has the words in it.
refused() {
	refused_status=$1
	words=$2
	shift 2
	status "$refused_status" "$@"
	[ -s out ] && fail "$*: printed $(cat out)"
	same "lines on stderr of '$*'" 1 "$(wc -l <err)"
	grep -q "$words" err || fail "$*: no '$words' in: $(cat err)"
}

# wrong_settings STATUS COMMAND...: the command of uroce refuses each that is wrong, names it and says what is valid.
wrong_settings() {
	wrong_status=$1
	shift
	long=$(printf '%064d' 0)
	while read -r setting words; do
		export "$setting"
		refused "$wrong_status" "${setting%%=*}: .*$words" "$uroce" "$@"
		unset "${setting%%=*}"
	done <<-END
		UROCE_PROFILE=no-such-card no profile 'no-such-card'; .*connectx-3, connectx-5, connectx-6, e810, rxe$
		UROCE_TIMING=early no timing 'early'; it is 'late' or 'random:SEED'
		UROCE_TIMING=random:-1 no timing 'random:-1'; it is 'late' or 'random:SEED'
		UROCE_EXPLAIN=/nowhere/causes the file '/nowhere/causes' cannot be appended to: .*; it is 'stderr', 'line', 'off' or a file
		UROCE_EXPLAIN=/tmp the file '/tmp' cannot be appended to
		UROCE_MEMORY=shared no way 'shared' of reaching memory; it is 'mapped', 'cma' or 'assist'
		UROCE_RUNTIME_DIR=somewhere 'somewhere' is not an absolute path; it is a directory of this user, mode 0700
		UROCE_DEVICES=a,b/c '.*b/c' is no device's name, .*; it is NAME or NAME:INTERFACE+INTERFACE
		UROCE_DEVICES=a, '' is no device's name, .*; it is NAME or NAME:INTERFACE+INTERFACE
		UROCE_DEVICES=$long '$long' is no device's name, which is 1 to 63
		UROCE_DEVICES=a,b,a device 'a' is named twice; it is NAME or NAME:INTERFACE+INTERFACE
		UROCE_DEVICES=a:lo+ '' is no interface's name (of device 'a'), .*; it is NAME or NAME:INTERFACE
		UROCE_DEVICES=a:lo,b:a-name-of-16-long 'a-name-of-16-long' is no interface's name (of device 'b')
	END
}

# A copy of the command and its libraries, laid out as they are installed under $1.
install_in() {
	mkdir -p "$1/bin" "$1/lib/uroce"
	cp "$uroce" "$1/bin/"
	cp "$library" "${library%/*}/librdmacm.so.1" "$1/lib/uroce/"
}

# other_user_takes_port PORT: of all IPv4 addresses; until $holder is killed.
other_user_takes_port() {
	[ "$(id -u)" = 0 ] || skip "only root can be two users"
	mkfifo bound
	setpriv --reuid 65534 --clear-groups /usr/bin/python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', $1))
print('bound', flush=True)
time.sleep(60)" >bound &
	holder=$!
	read -r line <bound
}

# counted: starts counted.c; its id is left in $counted, what it said in said. It ends with descriptor 3.
counted() {
	mkfifo stays words
	"$uroce" run -- "$HERE/counted" <stays >words &
	counted=$!
	exec 3>stays
	trap 'kill -KILL $counted 2>/dev/null || :; rm -rf "$work"' EXIT
	while read -r word; do
		[ "$word" = ready ] && return
		echo "$word" >>said
	done <words
	fail "it did not get ready"
}

# said NAME: its number, as a decimal one.
said() {
	printf '%d\n' "$(awk -v name="$1" '$1 == name { print $2 }' said)"
}

run_case() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM
	chmod 755 "$work"
	cd "$work"
	"$@"
}
