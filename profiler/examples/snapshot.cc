// The example of the thesis, figure 3.1: one thread handles requests, another takes a snapshot every 10 ms and writes it
// to a file while it holds the mutex. Requests are the calls of request_handler.
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

std::mutex lock;
std::map<int, std::string> db;
volatile bool over = false;

__attribute__((noinline)) void snapshot(const char *path) {
    std::ofstream out(path);
    std::lock_guard<std::mutex> guard(lock);
    for (const auto &entry : db)
        out << entry.first << "," << entry.second << std::endl;
    out.close();
}

__attribute__((noinline)) void request_handler(int key, std::string &value) {
    std::lock_guard<std::mutex> guard(lock);
    db[key] = value;
}

int main(int, char **arguments) {
    std::thread background([=] {
        while (!over) {
            snapshot(arguments[1]);
            usleep(10000);
        }
    });
    for (int i = 0; i < 300000; i++) {
        std::string value(100, 'a' + std::rand() % 26);
        request_handler(std::rand() % 2000, value);
    }
    over = true;
    background.join();
}
