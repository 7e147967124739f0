/* SPDX-License-Identifier: MIT */
/*
 * The network of a lab: a network namespace for each host, with a loopback and one interface, eth0. Host number I has
 * 10.77.0.I/24, fd77::I/64 (I in decimal digits) and the Ethernet address 02:75:72:6f:63:I.
 *
 * Without trouble eth0 is one end of a veth pair whose other end is in a bridge in init's namespace: the kernel carries
 * the frames, in aggregates as large as programs send them. With trouble, or where the kernel makes no such devices, it
 * is a TAP device that our switch reads.
 *
 * Nothing waits for duplicate address detection or for routers. Hosts know each other's Ethernet addresses: what is sent
 * while one is asked for may be overtaken by what is sent then, and the kernel keeps few of those that it has learnt.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/neighbour.h>
#include <netlink/route/route.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/lab.h"
#include "tools/tools.h"

#define INTERFACE "eth0"
#define BRIDGE	  "lab"

/* Frames that a TAP device keeps until the switch reads them. It makes no sender wait: what is more is lost. */
enum { TAP_QUEUE = 10000 };

static const unsigned char address_start[] = { 0x02, 'u', 'r', 'o', 'c' };

unsigned network_number_of(const unsigned char *address)
{
	return memcmp(address, address_start, sizeof(address_start)) ? 0 : address[5];
}

static struct nl_addr *ethernet_address(const struct host *host)
{
	unsigned char bytes[6];

	memcpy(bytes, address_start, sizeof(address_start));
	bytes[5] = (unsigned char)host->number;
	return nl_addr_build(AF_LLC, bytes, sizeof(bytes));
}

static struct nl_addr *ip_address(const struct host *host, int family)
{
	unsigned char bytes[16];
	char text[32];

	snprintf(text, sizeof(text), family == AF_INET ? "10.77.0.%u" : "fd77::%u", host->number);
	inet_pton(family, text, bytes);
	return nl_addr_build(family, bytes, family == AF_INET ? 4 : 16);
}

/* A socket of the namespace that we are in; NULL after a line. */
static struct nl_sock *connect_netlink(const struct lab *lab)
{
	struct nl_sock *sock = nl_socket_alloc();
	int error = sock ? nl_connect(sock, NETLINK_ROUTE) : -NLE_NOMEM;

	if (!error)
		return sock;
	complain(lab->name, "cannot speak with the kernel's network: %s", nl_geterror(error));
	nl_socket_free(sock);
	return NULL;
}

static bool write_setting(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);

	if (fd >= 0)
		close(fd);
	return written;
}

/* Leaves us in it. */
static bool make_namespace(const struct lab *lab, struct host *host)
{
	if (unshare(CLONE_NEWNET)) {
		complain(lab->name, "cannot make a network namespace: %s", strerror(errno));
		return false;
	}
	host->netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	host->tcp[0] = open("/proc/thread-self/net/tcp", O_RDONLY | O_CLOEXEC);
	host->tcp[1] = open("/proc/thread-self/net/tcp6", O_RDONLY | O_CLOEXEC);
	host->local = open("/proc/thread-self/net/unix", O_RDONLY | O_CLOEXEC);
	host->counts = open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC);
	if (host->netns < 0 || host->tcp[0] < 0 || host->local < 0 || host->counts < 0) {
		complain(lab->name, "/proc/thread-self: %s", strerror(errno));
		return false;
	}
	/* Interfaces that are made from now on. Where there is no IPv6 the files are not there. */
	write_setting("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0");
	write_setting("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
	write_setting("/proc/sys/net/ipv6/conf/default/accept_ra", "0");
	return true;
}

/* 0, or an error of libnl's. */
static int make_bridge(struct nl_sock *sock, int *index)
{
	struct rtnl_link *link = rtnl_link_bridge_alloc();
	int error = link ? 0 : -NLE_NOMEM;

	if (!error) {
		rtnl_link_set_name(link, BRIDGE);
		rtnl_link_set_flags(link, IFF_UP);
		error = rtnl_link_add(sock, link, NLM_F_CREATE | NLM_F_EXCL);
	}
	rtnl_link_put(link);
	*index = (int)if_nametoindex(BRIDGE);
	return error;
}

/* From the bridge to the host. 0, or an error of libnl's. */
static int make_veth(struct nl_sock *sock, const struct lab *lab, const struct host *host,
		     int bridge)
{
	struct rtnl_link *link = rtnl_link_veth_alloc();
	struct rtnl_link *peer = link ? rtnl_link_veth_get_peer(link) : NULL;
	int error = -NLE_NOMEM;

	if (peer) {
		rtnl_link_set_name(link, host->name);
		rtnl_link_set_mtu(link, lab->mtu);
		rtnl_link_set_master(link, bridge);
		rtnl_link_set_flags(link, IFF_UP);
		rtnl_link_set_name(peer, INTERFACE);
		rtnl_link_set_mtu(peer, lab->mtu);
		rtnl_link_set_ns_fd(peer, host->netns);
		error = rtnl_link_add(sock, link, NLM_F_CREATE | NLM_F_EXCL);
		rtnl_link_put(peer);
	}
	rtnl_link_put(link);
	return error;
}

/* In the namespace of the bridge. 0, or an error of libnl's. */
static int join_by_bridge(struct nl_sock *sock, const struct lab *lab)
{
	int bridge, error = make_bridge(sock, &bridge);

	for (unsigned i = 0; i < lab->count && !error; i++)
		error = make_veth(sock, lab, &lab->hosts[i], bridge);
	return error;
}

/* In the host's namespace. */
static bool make_tap(const struct lab *lab, struct host *host)
{
	struct ifreq request = { .ifr_name = INTERFACE, .ifr_flags = IFF_TAP | IFF_NO_PI };

	host->tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (host->tap >= 0 && !ioctl(host->tap, TUNSETIFF, &request))
		return true;
	complain(lab->name, "/dev/net/tun: %s; the links of the hosts are made with it%s",
		 strerror(errno),
		 errno == ENOENT || errno == EACCES || errno == EPERM ?
			 " (to a container it is given with --device /dev/net/tun)" :
			 "");
	return false;
}

static int set_up_link(struct nl_sock *sock, const struct lab *lab, const struct host *host,
		       const char *interface)
{
	struct rtnl_link *link, *change = rtnl_link_alloc();
	struct nl_addr *address;
	int error = change ? rtnl_link_get_kernel(sock, 0, interface, &link) : -NLE_NOMEM;

	if (error) {
		rtnl_link_put(change);
		return error;
	}
	rtnl_link_set_flags(change, IFF_UP);
	if (!strcmp(interface, INTERFACE)) {
		address = ethernet_address(host);
		rtnl_link_set_addr(change, address);
		nl_addr_put(address);
		rtnl_link_set_mtu(change, lab->mtu);
		if (lab->switched)
			rtnl_link_set_txqlen(change, TAP_QUEUE);
	}
	error = rtnl_link_change(sock, link, change, 0);
	rtnl_link_put(link);
	rtnl_link_put(change);
	return error;
}

static int add_address(struct nl_sock *sock, const struct host *host, int family)
{
	struct rtnl_addr *entry = rtnl_addr_alloc();
	struct nl_addr *address = ip_address(host, family);
	int error = -NLE_NOMEM;

	if (entry && address) {
		nl_addr_set_prefixlen(address, family == AF_INET ? 24 : 64);
		rtnl_addr_set_ifindex(entry, (int)if_nametoindex(INTERFACE));
		rtnl_addr_set_local(entry, address);
		if (family == AF_INET6)
			rtnl_addr_set_flags(entry, IFA_F_NODAD);
		error = rtnl_addr_add(sock, entry, 0);
	}
	nl_addr_put(address);
	rtnl_addr_put(entry);
	return error;
}

static int add_neighbour(struct nl_sock *sock, const struct host *host, int family)
{
	struct rtnl_neigh *entry = rtnl_neigh_alloc();
	struct nl_addr *ip = ip_address(host, family), *ethernet = ethernet_address(host);
	int error = -NLE_NOMEM;

	if (entry && ip && ethernet) {
		rtnl_neigh_set_ifindex(entry, (int)if_nametoindex(INTERFACE));
		rtnl_neigh_set_dst(entry, ip);
		rtnl_neigh_set_lladdr(entry, ethernet);
		rtnl_neigh_set_state(entry, NUD_PERMANENT);
		error = rtnl_neigh_add(sock, entry, NLM_F_CREATE);
	}
	nl_addr_put(ip);
	nl_addr_put(ethernet);
	rtnl_neigh_put(entry);
	return error;
}

/* Programs that name no interface send to groups over this one, and join them there, as where there is a default route. */
static int add_group_route(struct nl_sock *sock)
{
	const unsigned char groups[4] = { 224 };
	struct rtnl_route *route = rtnl_route_alloc();
	struct rtnl_nexthop *hop = rtnl_route_nh_alloc();
	struct nl_addr *to = nl_addr_build(AF_INET, groups, sizeof(groups));
	int error = -NLE_NOMEM;

	if (route && hop && to) {
		nl_addr_set_prefixlen(to, 4);
		rtnl_route_set_dst(route, to);
		rtnl_route_set_scope(route, RT_SCOPE_LINK);
		rtnl_route_nh_set_ifindex(hop, (int)if_nametoindex(INTERFACE));
		rtnl_route_add_nexthop(route, hop);
		hop = NULL;
		error = rtnl_route_add(sock, route, NLM_F_CREATE);
	}
	if (hop)
		rtnl_route_nh_free(hop);
	nl_addr_put(to);
	rtnl_route_put(route);
	return error;
}

static int set_up_family(struct nl_sock *sock, const struct lab *lab, const struct host *host,
			 int family)
{
	int error = add_address(sock, host, family);

	for (unsigned i = 0; i < lab->count && !error; i++)
		if (&lab->hosts[i] != host)
			error = add_neighbour(sock, &lab->hosts[i], family);
	return error;
}

/* In the host's namespace. */
static bool set_up_host(const struct lab *lab, const struct host *host)
{
	struct nl_sock *sock = connect_netlink(lab);
	int error;

	if (!sock)
		return false;
	error = set_up_link(sock, lab, host, "lo");
	if (!error)
		error = set_up_link(sock, lab, host, INTERFACE);
	if (!error)
		error = set_up_family(sock, lab, host, AF_INET);
	if (!error)
		error = add_group_route(sock);
	/* Where there is IPv6. */
	if (!error && host->tcp[1] >= 0)
		error = set_up_family(sock, lab, host, AF_INET6);
	if (error)
		complain(lab->name, "cannot set up the network of %s: %s", host->name,
			 nl_geterror(error));
	nl_socket_free(sock);
	return !error;
}

static bool enter(const struct lab *lab, int netns)
{
	if (!setns(netns, CLONE_NEWNET))
		return true;
	complain(lab->name, "cannot enter a network namespace: %s", strerror(errno));
	return false;
}

bool network_make(struct lab *lab)
{
	int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	struct nl_sock *sock = connect_netlink(lab);
	bool made = own >= 0 && sock;

	for (unsigned i = 0; i < lab->count && made; i++)
		made = make_namespace(lab, &lab->hosts[i]);
	lab->switched = lab->trouble.asked;
	/* The socket stays in the namespace that it was made in. */
	if (made && !lab->switched)
		made = enter(lab, own);
	if (made && !lab->switched && join_by_bridge(sock, lab))
		lab->switched = true;
	for (unsigned i = 0; i < lab->count && made; i++)
		made = enter(lab, lab->hosts[i].netns) &&
		       (!lab->switched || make_tap(lab, &lab->hosts[i])) &&
		       set_up_host(lab, &lab->hosts[i]);
	made = made && enter(lab, own);
	nl_socket_free(sock);
	close(own);
	return made;
}

uint64_t network_overruns(const struct host *host)
{
	static const char before[] = INTERFACE ":";
	char text[4096], *at;
	uint64_t dropped = 0;
	ssize_t size = pread(host->counts, text, sizeof(text) - 1, 0);

	text[size > 0 ? size : 0] = '\0';
	at = strstr(text, before);
	/* Eight columns of what was received; sent bytes, frames, errors, dropped. */
	if (at)
		sscanf(at + sizeof(before) - 1,
		       "%*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &dropped);
	return dropped;
}
