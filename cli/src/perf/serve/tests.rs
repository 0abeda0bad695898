//! The other end of a measurement, and clients of many kinds.

use std::io::Write;

use super::*;

/// Ends a server when it is dropped, also by a test that fails.
struct End {
    asked: Arc<AtomicBool>,
    rope: UnixStream,
}

impl Drop for End {
    fn drop(&mut self) {
        self.asked.store(true, Ordering::Relaxed);
        let _ = self.rope.write_all(b"x");
    }
}

#[test]
fn an_address_that_is_told_can_be_called() {
    for (listens, is_called) in [
        ("shm:bench", "shm:bench"),
        ("udp:0.0.0.0:7400", "udp:HOST:7400"),
        ("net:[::]:7400", "net:HOST:7400"),
        ("udp:10.0.0.0:7400", "udp:10.0.0.0:7400"),
    ] {
        assert_eq!(called(listens), is_called);
    }
}

/// Asks and goes before it is let in: those that come after it must not wait for what it will never do.
#[test]
fn a_client_that_goes_before_it_is_let_in_holds_up_nobody() {
    let folder = std::env::temp_dir().join(format!("cutthrough-serve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let address = format!("shm:{}", folder.join("lobby.sock").display());
    let asked = Arc::new(AtomicBool::new(false));
    let (bell, rope) = UnixStream::pair().unwrap();
    let ending = Ending { asked: Arc::clone(&asked), bell };
    let mut lobby = Endpoint::open(Config::default()).unwrap();
    lobby.listen(&address).unwrap();
    std::thread::scope(|scope| {
        let at = address.clone();
        scope.spawn(move || serve(lobby, at, Seal::None, &ending, Time::Always));
        let _end = End { asked, rope };
        let say = |ask: &Ask| {
            let mut client = Endpoint::open(Config::default()).unwrap();
            let channel = client.connect(&address, PATIENCE / 2).unwrap();
            client.send(channel, &ask::write(ask).unwrap()).unwrap();
            client
        };
        let setup = Setup {
            policy: "adaptive".into(),
            placement: "auto".into(),
            net_xdp: false,
            staging_bytes: 1 << 16,
            memory_bytes: 1 << 20,
            landing: None,
            channels: 1,
        };
        let gone = say(&Ask::Open(setup));
        let mut next = say(&Ask::CpuTime);
        drop(gone);
        let heard = next.wait(Some(PATIENCE / 2));
        assert!(matches!(heard, Ok(Event::Message(_))), "{heard:?}");
    });
    std::fs::remove_dir_all(&folder).unwrap();
}
