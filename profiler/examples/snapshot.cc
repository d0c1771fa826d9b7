// Example of the thesis, figure 3.1: a thread handles requests (calls of request_handler). Another
// writes a snapshot to a file every 10 ms and holds the mutex meanwhile. Arguments: FILE [REQUESTS]
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

__attribute__((noinline)) std::string random_string() {
    std::string value;
    while (value.size() < 100)
        value += 'a' + std::rand() % 26;
    return value;
}

__attribute__((noinline)) void request_handler(int key, std::string &value) {
    std::lock_guard<std::mutex> guard(lock);
    db[key] = value;
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    long rounds = count > 2 ? std::atol(arguments[2]) : 300000;
    std::thread background([=] {
        while (!over) {
            snapshot(arguments[1]);
            usleep(10000);
        }
    });
    for (long i = 0; i < rounds; i++) {
        std::string value = random_string();
        request_handler(std::rand() % 10000, value);
    }
    over = true;
    background.join();
}
