// NEAR and FAR are how many bytes before its use memory at several places is fetched, to
// the first cache and to the second: to the first alone few lines are on their way at a
// time.
#define NEAR 1024
#define FAR  4096
