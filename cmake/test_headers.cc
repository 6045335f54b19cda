// The target is there for its precompiled header.
int main() {}
