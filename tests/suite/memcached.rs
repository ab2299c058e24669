//! memcached with four threads and as many clients, each of which knows what it stored.

use farmem_tests::{Launcher, MemcacheClient, Program, SplitMix, scaled, value_bytes};

crate::at_both_shares!(verifying_clients, super::verifying_clients);

const CLIENTS: u64 = 4;
const LONGEST: usize = 4000;

pub(crate) fn verifying_clients(launcher: &Launcher) -> String {
    let keys_each = scaled(8_000);
    let socket = launcher.file("memcached.socket");
    let memory_mebibytes = (scaled(256)).to_string();
    let program = Program::new("memcached")
        .args(["-s", "memcached.socket", "-t", "4", "-u", "root", "-m"])
        .arg(memory_mebibytes);
    let mut running = launcher.start(program);
    let mut observer = running.until("a server that answers", || MemcacheClient::connect(&socket));

    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let socket = &socket;
            scope.spawn(move || {
                let mut connection = MemcacheClient::connect(socket).expect("the server listens");
                let mut random = SplitMix::new(client);
                let mut versions = vec![0; usize::try_from(keys_each).expect("a small count")];
                let name = |number: u64| format!("client:{client}:{number}");
                let identity = |number: u64| client * keys_each + number;
                for number in 0..keys_each {
                    connection.set(&name(number), &value_bytes(identity(number), 0, LONGEST));
                }
                for _ in 0..keys_each {
                    let number = random.below(keys_each);
                    let version = &mut versions[usize::try_from(number).expect("a small count")];
                    if random.below(10) < 3 {
                        *version += 1;
                        connection.set(&name(number), &value_bytes(identity(number), *version, LONGEST));
                    } else {
                        let value = connection.get(&name(number));
                        assert!(
                            value == Some(value_bytes(identity(number), *version, LONGEST)),
                            "{}",
                            name(number)
                        );
                    }
                }
                for number in 0..keys_each {
                    let version = versions[usize::try_from(number).expect("a small count")];
                    let value = connection.get(&name(number));
                    assert!(
                        value == Some(value_bytes(identity(number), version, LONGEST)),
                        "{}",
                        name(number)
                    );
                }
            });
        }
    });

    let transcript = format!(
        "items {}, evictions {}, misses {}",
        observer.statistic("curr_items"),
        observer.statistic("evictions"),
        observer.statistic("get_misses")
    );
    let server = rustix::process::Pid::from_raw(
        i32::try_from(running.program_process_id().expect("it is running")).expect("a process number"),
    );
    rustix::process::kill_process(server.expect("a process number"), rustix::process::Signal::TERM)
        .expect("it is running");
    running.wait();
    transcript
}
