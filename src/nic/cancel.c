/* SPDX-License-Identifier: MIT */
/* See cancel.h. */
#include "nic/cancel.h"

NIC_HOT_TLS bool cancel_allowed;
