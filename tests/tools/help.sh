#!/bin/sh
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/common.sh"

every_command_explains_itself() {
	status 0 "$uroce" --help
	for command in run lab env explain info stat top trace doctor; do
		grep -q "^  $command " out || fail "--help does not name $command"
	done
	for command in run lab env explain info stat top trace doctor; do
		status 0 "$uroce" $command --help
		grep -q "^Usage: uroce $command" out || fail "$command --help: $(cat out)"
	done
	status 0 "$uroce" --version
	grep -q '^uroce [0-9]' out || fail "--version: $(cat out)"
}

every_command_has_a_man_page() {
	cmake --install "$BUILD" --prefix "$work/usr" >/dev/null
	for command in run lab env explain info stat top trace doctor; do
		page=usr/share/man/man1/uroce-$command.1
		[ -f $page ] || fail "no $page"
		"$uroce" $command --help |
			sed -n 's/^ .*--\([a-z]*\)[ =\[].*/\1/p' | grep -vx -e help -e usage -e version >options ||
			:
		while read -r option; do
			grep -q -- "\\\\-\\\\-$option" $page || fail "$page does not name --$option"
		done <options
	done
}

unknown_command_is_refused() {
	status 2 "$uroce" no-such-command
	status 2 "$uroce"
	status 2 "$uroce" --no-such-option
}

closed_output_is_an_error() {
	[ -c /dev/full ] || skip "no /dev/full here"
	found=0
	"$uroce" env >/dev/full 2>err || found=$?
	same status 1 $found
	grep -q 'No space left' err || fail "$(cat err)"
}

run_case "$@"
