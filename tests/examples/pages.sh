#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The concept pages are true: their listings are those of examples/, what they show is what the programs print.
# $SOURCE/docs/concepts/PAGE.md and zh/PAGE.md; a listing is a block "```c FILE" or "```python FILE", a transcript a block
# "```console" whose first line is "$ COMMAND".
. "$(dirname "$0")/../tools/common.sh"

pages=$SOURCE/docs/concepts

# blocks FILE: leaves its blocks in block.1, block.2, ...; the first line of each is what stands behind the backquotes.
blocks() {
	rm -f block.*
	awk '/^```/ && inside { inside = 0; close(file); next }
		/^```/ { inside = 1; file = "block." ++count; print substr($0, 4) >file; next }
		inside { print >file }' "$1"
	[ -f block.1 ] || fail "$1 has no blocks"
}

# Without what differs from run to run: addresses, keys and numbers of queue pairs, times, processes.
normal() {
	sed -E 's/0x[0-9a-f]+/0x#/g; s/[0-9]+\.[0-9]+ ms/# ms/g; s/[0-9:]{8}\.[0-9]{6}/#/; s/(process |进程 )[0-9]+/\1#/g; s/ at .*\/examples\// at examples\//'
}

# matches SHOWN PRINTED: they are the same; a line "[...]" stands for any number of lines.
matches() {
	awk 'NR == FNR { shown[++last] = $0; next }
		{ printed[++end] = $0 }
		END {
			for (at = line = 1; line <= end;) {
				if (at <= last && shown[at] == "[...]") { left_out = ++at; from = line }
				else if (at <= last && shown[at] == printed[line]) { at++; line++ }
				else if (left_out) { at = left_out; line = ++from }
				else exit 1
			}
			while (at <= last && shown[at] == "[...]") at++
			exit at <= last
		}' "$1" "$2" || { diff -u "$1" "$2" >&2; return 1; }
}

# here: a directory in which the commands of the pages work.
here() {
	mkdir examples
	for file in "$BUILD"/examples/* "$SOURCE"/examples/*.py; do ln -s "$file" examples/; done
	# Debian's Python is the one that has Debian's pyverbs.
	PATH=$BUILD/bin:/usr/bin:$PATH
	export PATH LC_ALL=C.UTF-8 LANGUAGE="$1"
}

# Which transcripts a page has, and that each is what its command prints.
transcripts() {
	page=$pages/$1
	case $1 in zh/*) here zh_CN ;; *) here en ;; esac
	blocks "$page"
	found=0
	for block in block.*; do
		[ "$(head -n 1 "$block")" = console ] || continue
		command=$(sed -n '2s/^\$ //p' "$block")
		[ "$command" ] || fail "$block of $page has no command"
		case $command in *python3*) python3 -c 'import pyverbs' 2>/dev/null || skip "no python3-pyverbs" ;; esac
		# As on a terminal: what the program prints, and then what is said of it.
		sh -c "$command" >out 2>err </dev/null || fail "$command: status $?, $(cat err)"
		cat out err | normal >printed
		sed 1,2d "$block" | normal >shown
		matches shown printed || fail "$page: $command does not print what the page shows"
		found=$((found + 1))
	done
	[ $found -gt 0 ] || fail "no transcript in $page"
}

# late|prompt: what the programs themselves print is the same in other timings and over the wire, whatever is said of it.
output() {
	here en
	[ "$2" = prompt ] || export UROCE_TIMING="$2"
	blocks "$pages/$1"
	for block in block.*; do
		command=$(sed -n '2s/^\$ \(uroce run -- .*\)/\1/p' "$block")
		[ "$command" ] || continue
		case $command in *python3*) python3 -c 'import pyverbs' 2>/dev/null || skip "no python3-pyverbs" ;; esac
		sh -c "$command" 2>err </dev/null | normal >printed
		sed 1,2d "$block" | grep -v '^uroce' | normal >shown
		matches shown printed || fail "$command prints something else; it said: $(cat err)"
	done
}

# Every listing is lines of its file, in order and without a gap; one in Python is all of it.
listings_are_those_of_the_files() {
	for page in "$pages"/[a-z]*.md "$pages"/zh/[a-z]*.md; do
		blocks "$page"
		found=0
		for block in block.*; do
			file=$(sed -n '1s/^\(c\|python\) \(examples\/[a-z_]*\.[a-z]*\)$/\2/p' "$block")
			[ "$file" ] || continue
			[ -f "$SOURCE/$file" ] || fail "$page: there is no $file"
			sed 1d "$block" >listing
			case $file in
			*.py) cmp listing "$SOURCE/$file" || fail "$page: not all of $file" ;;
			*) awk 'NR == FNR { part = part $0 "\n"; next } { all = all $0 "\n" } END { exit !index("\n" all, "\n" part) }' \
				listing "$SOURCE/$file" || fail "$page: this is not in $file: $(cat listing)" ;;
			esac
			found=$((found + 1))
		done
		[ $found -gt 0 ] || fail "$page has no listing"
	done
}

both_languages_have_the_same_listings() {
	for page in "$pages"/*.md; do
		[ -f "$pages/zh/${page##*/}" ] || fail "there is no zh/${page##*/}"
		for file in "$page" "$pages/zh/${page##*/}"; do
			awk '/^```/ && inside { inside = 0; print; next } /^```(c|python) / { inside = 1 } inside; /^\$ / { print }' "$file" >"listings"
			if [ "$file" = "$page" ]; then mv listings english; else diff -u english listings >&2 || fail "$file differs"; fi
		done
	done
	same pages "$(cd "$pages" && echo *.md)" "$(cd "$pages/zh" && echo *.md)"
}

# Every program is on a page.
every_example_is_shown() {
	for file in "$SOURCE"/examples/*.c "$SOURCE"/examples/*.py; do
		name=${file##*/}
		grep -q "^\\\$ .*examples/\(${name%.c}\|$name\)\( \|\$\)" "$pages"/*.md || fail "no page shows what $name prints"
	done
}

# Below the first transcript of each program its picture, in the page's language, as its trace is drawn now: with as many messages, as
# many of them failed, and the same queues.
every_page_has_its_pictures() {
	here en
	unset UROCE_TIMING UROCE_TRANSPORT
	for page in "$pages"/[a-z]*.md; do
		programs=$(sed -n 's/^\$ uroce run -- examples\/\([a-z_]*\)$/\1/p' "$page")
		[ "$programs" ] || fail "$page shows no program"
		for program in $programs; do
			uroce trace -o now.svg -- "examples/$program" >out 2>err || fail "$(cat err)"
			shape now.svg >now
			for picture in "pictures/$program.svg" "zh/../pictures/$program.zh.svg"; do
				case $picture in zh/*) file=$pages/zh/${page##*/} link=${picture#zh/} ;; *) file=$page link=$picture ;; esac
				awk -v first="$ uroce run -- examples/$program" -v link="($link)" '$0 == first { here = 1 }
					here && /^```$/ { getline; getline; good = /^!\[.+\]\(/ && index($0, link); exit }
					END { exit !good }' "$file" ||
					fail "$file does not show $link below what $program prints"
				shape "$pages/$picture" >shown || fail "$picture is no SVG"
				diff -u shown now >&2 || fail "$picture is not what $program does"
			done
			! grep -q 最多 "$pages/pictures/$program.svg" || fail "$program.svg is not English"
			grep -q 最多 "$pages/pictures/$program.zh.svg" || fail "$program.zh.svg is not Chinese"
		done
	done
}

# shape FILE: the messages and the queues of a picture.
shape() {
	/usr/bin/python3 -c '
import sys, xml.etree.ElementTree as tree
for e in tree.parse(sys.argv[1]).iter():
    kind = e.get("class") or ""
    if kind.startswith("message") or kind.startswith("fill"):
        print(kind)' "$1"
}

plain_compiler_builds_every_example() {
	for file in "$SOURCE"/examples/*.c; do
		cp "$file" .
		cc -Wall -Wextra -Werror "${file##*/}" -libverbs || fail "${file##*/}"
	done
}

# Links from one page to another, to files, and to headings.
links_resolve() {
	for page in "$SOURCE"/*.md $(find "$SOURCE/docs" "$SOURCE/bench" -name '*.md'); do
		awk '/^```/ { code = !code } !code' "$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' >targets || :
		while read -r target; do
			case $target in http*:*) continue ;; esac
			file=${target%%#*}
			if [ "$file" ]; then file=$(dirname "$page")/$file; else file=$page; fi
			[ -e "$file" ] || fail "$page: no $target"
			case $target in *'#'*) ;; *) continue ;; esac
			# As the heading is written in an address: lower case, without punctuation, hyphens for blanks.
			sed -n 's/^##* //; T; s/：//g; p' "$file" | tr 'A-Z ' 'a-z-' | tr -d '`.,:;?!()/' | grep -qx -- "${target#*#}" ||
				fail "$page: no heading for $target"
		done <targets
	done
}

run_case "$@"
