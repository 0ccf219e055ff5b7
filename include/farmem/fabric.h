// Layer `fabric`: transports behind one interface. Memory by (region, offset), requests with deadlines, sessions that
// survive their connections.
#pragma once

#include <farmem/fabric/doctor.h>
#include <farmem/fabric/request.h>
#include <farmem/fabric/service.h>
#include <farmem/fabric/session.h>
#include <farmem/fabric/url.h>
