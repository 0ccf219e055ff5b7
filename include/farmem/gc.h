// Layer `gc`: roots, and the collector that leads the agents through a cycle.
#pragma once

#include <farmem/gc/collector.h>
#include <farmem/gc/roots.h>
