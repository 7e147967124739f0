# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # $uroce, $attend and $patience are of who sources it
#
# Sourced: programs on both sides of the peer whose directory is $dir; $peer is its script.
peer=$(dirname "${BASH_SOURCE[0]}")/peer.sh

# here LOG COMMAND...: on uroce, in the background or a subshell only: it becomes the command.
here() {
	local log=$1
	shift
	exec "$peer" here "$dir" "$attend" "$patience" "$uroce" run -- "$@" >"$log" 2>&1
}

# there LOG LINE: a command in the peer, likewise.
there() {
	exec "$peer" there "$dir" "$patience" "echo \$\$ >/tmp/side; exec $2" >"$1" 2>&1
}

# Ends the last command that was begun in the peer.
there_stop() {
	# shellcheck disable=SC2016 # what another shell expands
	"$peer" there "$dir" 10 'kill $(cat /tmp/side)' >/dev/null
}

# look SIDE LINE: a line of shell that looks for something.
look() {
	case $1 in
	here) "$peer" here "$dir" sh -c "$2" ;;
	there) "$peer" there "$dir" 10 "$2" ;;
	esac >/dev/null 2>&1
}
