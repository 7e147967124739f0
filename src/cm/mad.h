/* SPDX-License-Identifier: MIT */
/*
 * CM MADs as bytes: the messages of the communication management class (specification volume 1, chapter 12.6) and the header that
 * the RDMA IP CM service (annex A11) puts into their private data. Nothing here knows what they are for.
 *
 * A message is a structure of named fields in host order; GIDs, IP addresses and private data are bytes. One table a message says
 * where they stand, and serves both directions. What the specification reserves is written as 0 and not looked at.
 */
#ifndef UROCE_CM_MAD_H
#define UROCE_CM_MAD_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define MAD_BYTES 256

/* AttributeID, table 103 */
enum mad_attribute {
	MAD_REQ = 0x10,
	MAD_MRA,
	MAD_REJ,
	MAD_REP,
	MAD_RTU,
	MAD_DREQ,
	MAD_DREP,
	MAD_SIDR_REQ,
	MAD_SIDR_REP,
	MAD_LAP, /* alternate paths: RoCE has none */
	MAD_APR,
};

/* Which message MRA and REJ are about */
enum mad_about { MAD_ABOUT_REQ, MAD_ABOUT_REP, MAD_ABOUT_OTHER };

/* Reasons of REJ (table 108) that are given or told apart here */
enum mad_reason {
	MAD_REJ_TIMEOUT = 4,
	MAD_REJ_SERVICE_ID = 8,
	MAD_REJ_TRANSPORT = 9,
	MAD_REJ_STALE = 10,
	MAD_REJ_CONSUMER = 28,
};

/* Status of SIDR_REP, table 121 */
enum mad_sidr_status { MAD_SIDR_VALID, MAD_SIDR_UNSUPPORTED, MAD_SIDR_REJECTED };

/* Transport service type of REQ; XRC is 3, and 1 in the extended type */
enum mad_transport { MAD_RC, MAD_UC, MAD_RD, MAD_EXTENDED };

/* Private data in bytes */
enum {
	MAD_REQ_PRIVATE = 92,
	MAD_MRA_PRIVATE = 222,
	MAD_REJ_PRIVATE = 148,
	MAD_REP_PRIVATE = 196,
	MAD_RTU_PRIVATE = 224,
	MAD_DREQ_PRIVATE = 220,
	MAD_DREP_PRIVATE = 224,
	MAD_SIDR_REQ_PRIVATE = 216,
	MAD_SIDR_REP_PRIVATE = 136,
	MAD_INFO_BYTES = 72, /* additional information of REJ and SIDR_REP */
	MAD_IP_BYTES = 36,   /* of the IP CM header, at the start of the private data of REQ and SIDR_REQ */
};

struct mad_path {
	uint16_t local_lid, remote_lid;
	union ibv_gid local_gid, remote_gid;
	uint32_t flow_label;
	uint8_t rate, traffic_class, hop_limit, sl, subnet_local;
	uint8_t ack_timeout; /* 4.096 us * 2^n */
};

struct mad_req {
	uint32_t vendor_id; /* of enhanced connection establishment */
	uint64_t service_id, ca_guid;
	uint32_t qkey, qpn, eecn, remote_eecn;
	uint8_t responder_resources, initiator_depth;
	uint8_t remote_timeout, local_timeout; /* of the CM, 4.096 us * 2^n */
	uint8_t transport, extended_transport, flow_control;
	uint32_t psn; /* from which the other end is to send */
	uint8_t retry_count, rnr_retry_count, max_retries;
	uint16_t pkey;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t rdc_exists, srq;
	struct mad_path primary, alternate;
	uint8_t private_data[MAD_REQ_PRIVATE];
};

struct mad_mra {
	uint8_t about, timeout;
	uint8_t private_data[MAD_MRA_PRIVATE];
};

struct mad_rej {
	uint8_t about, info_length;
	uint16_t reason;
	uint8_t info[MAD_INFO_BYTES];
	uint8_t private_data[MAD_REJ_PRIVATE];
};

struct mad_rep {
	uint32_t qkey, qpn, eecn, psn;
	uint8_t vendor_high, vendor_middle, vendor_low;
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay, failover, flow_control, rnr_retry_count, srq;
	uint64_t ca_guid;
	uint8_t private_data[MAD_REP_PRIVATE];
};

struct mad_rtu {
	uint8_t private_data[MAD_RTU_PRIVATE];
};

struct mad_dreq {
	uint32_t qpn; /* of who receives it */
	uint8_t private_data[MAD_DREQ_PRIVATE];
};

struct mad_drep {
	uint8_t private_data[MAD_DREP_PRIVATE];
};

struct mad_sidr_req {
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[MAD_SIDR_REQ_PRIVATE];
};

struct mad_sidr_rep {
	uint8_t status, info_length;
	uint16_t vendor_high;
	uint8_t vendor_low;
	uint32_t qpn, qkey;
	uint64_t service_id;
	uint8_t info[MAD_INFO_BYTES];
	uint8_t private_data[MAD_SIDR_REP_PRIVATE];
};

struct mad {
	uint16_t status, attribute;
	uint64_t tid;
	uint32_t modifier; /* ECE: the options */
	/* Communication IDs of sender and receiver. REQ has no second one; of SIDR both messages have the first alone, the asker's
	 * number of the request. */
	uint32_t local_id, remote_id;
	union {
		struct mad_req req;
		struct mad_mra mra;
		struct mad_rej rej;
		struct mad_rep rep;
		struct mad_rtu rtu;
		struct mad_dreq dreq;
		struct mad_drep drep;
		struct mad_sidr_req sidr_req;
		struct mad_sidr_rep sidr_rep;
	};
};

/* Reads a MAD; false if it is no Send of the CM class. Of LAP, APR and attributes that there are not, only what stands before
 * `local_id` is set. */
bool mad_decode(const uint8_t *from, struct mad *mad);
/* Writes one of those that have a structure. */
void mad_encode(const struct mad *mad, uint8_t *to);

/* The IP CM header. Addresses are GIDs: IPv4 mapped. */
struct mad_ip {
	uint8_t major, minor, version; /* of IP: 4 or 6 */
	uint16_t source_port;
	union ibv_gid source, destination;
};

/* False if it is none that we know, or names another family than its addresses have. */
bool mad_ip_decode(const uint8_t *from, struct mad_ip *ip);
void mad_ip_encode(const struct mad_ip *ip, uint8_t *to);

/* Service IDs of the port spaces: 0x0000 | port space | port. */
#define MAD_SERVICE_ID(ps, port) ((uint64_t)(ps) << 16 | (port))

#endif
