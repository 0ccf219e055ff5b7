// Layer `store`: what the agent is made of (service.h), what the owner uses to talk to it (link.h), and what they say
// to each other (protocol.h).
#pragma once

#include <farmem/store/link.h>
#include <farmem/store/paged_protocol.h>
#include <farmem/store/pool_protocol.h>
#include <farmem/store/protocol.h>
#include <farmem/store/service.h>
