"""A cable that holds every frame back: ``slow_cable.py INTERFACE INTERFACE DELAY_MS``, until it is killed.

What ``tc netem delay`` does, for kernels that were built without it.
"""

import array
import fcntl
import heapq
import select
import socket
import struct
import sys
import time

ETH_P_ALL, PACKET_OUTGOING, LONGEST_FRAME = 0x0003, 4, 65536
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17


def without_offload(plug, interface):
    """Have checksums computed and large frames cut before they reach the cable, as a real card's are."""
    value = array.array("B", struct.pack("II", ETHTOOL_STXCSUM, 0))
    fcntl.ioctl(plug, SIOCETHTOOL, struct.pack("16sP", interface.encode(), value.buffer_info()[0]))


def plug_into(interface):
    plug = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    plug.bind((interface, 0))
    return plug


def main(one, other, delay_s):
    plugs = [plug_into(one), plug_into(other)]
    waiting, number = [], 0
    print("plugged in", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for plug in select.select(plugs, [], [], timeout)[0]:
            frame, address = plug.recvfrom(LONGEST_FRAME)
            if address[2] != PACKET_OUTGOING:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + delay_s, number, plugs[plug is plugs[0]], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, plug, frame = heapq.heappop(waiting)
            plug.send(frame)


if __name__ == "__main__":
    if sys.argv[1] == "--without-offload":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            without_offload(control, sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1000)
