/* SPDX-License-Identifier: MIT */
/* A device that answers wrongly: a UDP socket at another address of this host. Needs UROCE_TRANSPORT=roce. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "mistakes.h"

#define READ_REQUEST	   12
#define READ_RESPONSE_ONLY 16
#define ACK		   0x1f /* AETH syndrome */

static struct sockaddr_in address_of(uint32_t host, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(host), .sin_port = htons(port) };
}

/* Over what the IP and UDP headers will be, with ones for what may change on the way. */
static uint32_t icrc(const struct sockaddr_in *from, const struct sockaddr_in *to, const uint8_t *packet, uint16_t bytes)
{
	const uint16_t udp = (uint16_t)(8 + bytes + 4), ip = (uint16_t)(20 + udp);
	uint8_t all[256], *headers = all + 8;
	uint32_t crc = ~0u;

	memset(all, 0xff, 8);
	memcpy(headers,
	       (uint8_t[]){ 0x45, 0xff, (uint8_t)(ip >> 8), (uint8_t)ip, 0, 0, 0x40, 0, 0xff, IPPROTO_UDP, 0xff, 0xff }, 12);
	memcpy(headers + 12, &from->sin_addr, 4);
	memcpy(headers + 16, &to->sin_addr, 4);
	memcpy(headers + 20, &from->sin_port, 2);
	memcpy(headers + 22, &to->sin_port, 2);
	memcpy(headers + 24, (uint8_t[]){ (uint8_t)(udp >> 8), (uint8_t)udp, 0xff, 0xff }, 4);
	memcpy(headers + 28, packet, bytes);
	headers[28 + 4] = 0xff;
	for (size_t i = 0; i < 8u + 28 + bytes; i++) {
		crc ^= all[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

int stranger_open(uint32_t host, uint16_t port)
{
	struct sockaddr_in address = address_of(host, port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), whole = IP_PMTUDISC_DO; /* so that the identification is 0 */

	must(fd >= 0 && !setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)), "socket");
	must(!bind(fd, (struct sockaddr *)&address, sizeof(address)), "bind");
	return fd;
}

void stranger_answers(int fd, uint32_t host, uint16_t port, uint32_t qpn, uint16_t payload)
{
	const struct sockaddr_in from = address_of(host, port);
	struct sockaddr_in to;
	socklen_t size = sizeof(to);
	uint8_t request[4096], answer[128] = { READ_RESPONSE_ONLY, 0, 0xff, 0xff };
	uint16_t bytes = (uint16_t)(12 + 4 + payload);
	uint32_t crc;

	do
		must(recvfrom(fd, request, sizeof(request), 0, (struct sockaddr *)&to, &size) > 12, "recvfrom");
	while (request[0] != READ_REQUEST);
	to.sin_port = htons(port);
	memcpy(answer + 5, (uint8_t[]){ (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn }, 3);
	memcpy(answer + 9, request + 9, 3); /* PSN */
	answer[12] = ACK;
	answer[15] = 1; /* MSN */
	crc = icrc(&from, &to, answer, bytes);
	memcpy(answer + bytes, &crc, 4);
	must(sendto(fd, answer, bytes + 4u, 0, (struct sockaddr *)&to, sizeof(to)) == bytes + 4, "sendto");
}
