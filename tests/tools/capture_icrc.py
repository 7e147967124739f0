# SPDX-License-Identifier: MIT
"""usage: capture_icrc.py FILE

Computes the ICRC of each packet of a pcapng file anew, by the specification (RoCEv2 annex A17.3.3) and zlib. Prints how many
packets were whole, and how many cut off; fails at the first that is wrong.
"""
import struct
import sys
import zlib


def packets(data):
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from('<II', data, at)
        assert length >= 12 and length % 4 == 0, f'a block of {length} bytes at {at}'
        assert struct.unpack_from('<I', data, at + length - 4)[0] == length, f'the block at {at} does not end as it began'
        if kind == 6:
            kept, full = struct.unpack_from('<II', data, at + 20)
            yield data[at + 28:at + 28 + kept], full
        at += length
    assert at == len(data)


def icrc(frame):
    ip = bytearray(frame[14:])
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = 0xff
        ip[10:12] = b'\xff\xff'
        udp = 20
    else:
        ip[0] |= 0x0f
        ip[1:4] = b'\xff\xff\xff'
        ip[7] = 0xff
        udp = 40
    ip[udp + 6:udp + 8] = b'\xff\xff'
    ip[udp + 8 + 4] = 0xff
    return zlib.crc32(b'\xff' * 8 + bytes(ip[:-4]))


whole = cut = 0
for number, (frame, full) in enumerate(packets(open(sys.argv[1], 'rb').read()), 1):
    if len(frame) < full:
        cut += 1
        continue
    whole += 1
    if icrc(frame) != struct.unpack('<I', frame[-4:])[0]:
        sys.exit(f'packet {number}: ICRC {frame[-4:].hex()}, should be {icrc(frame):08x} (little-endian)')
print(f'{whole} whole, {cut} cut off')
