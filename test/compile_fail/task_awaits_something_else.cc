// expect: an fm::task awaits p.fetch() and other fm::tasks; something else would never be resumed by fm::run
#include <farmem/farmem.h>

fm::task<> waits_for_ever() { co_await std::suspend_always(); }
