// The process between EmberCache and Mooncake's C library. It travels in our own program, and is
// started from memory, with the control socket as descriptor 3.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "src/store/mooncake/bridge_server.h"

int main() {
  // What ends it is the control socket: a program that drains needs its store until then.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "embercache-mc");
  embercache::mooncake::BridgeServer server(embercache::mooncake::kControlFd);
  server.Run();
  _exit(0);  // the client's own end can hang
}
