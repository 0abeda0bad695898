//! The ordinary way, to compare with: the same pages of the same memory through a Unix stream socket. Each side sleeps
//! in the kernel until something comes; a page is copied into the kernel and out of it.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getppid};

use super::ask::Setup;
use super::source;

/// Into the kernel, and out of it.
pub const COPIES: u32 = 2;

/// Bytes of a request: the number of a page, or of bytes in each message of a stream; and how many times over the file
/// is streamed, 0 for a page.
const REQUEST: usize = 8;

/// How long the other process may say nothing, and take nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at whether it comes.
const LOOK: Duration = Duration::from_millis(1);

/// The name of the socket in the folder of a setup, the longest one there.
pub const SOCKET: &str = "ordinary.sock";

fn path(setup: &Setup) -> PathBuf {
    setup.folder.join(SOCKET)
}

/// The fetching process's end.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Connects to the serving process, which listens as this setup says.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(setup: &Setup) -> io::Result<Self> {
        let stream = UnixStream::connect(path(setup))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Fetches a page into its place.
    ///
    /// # Errors
    /// If the serving process is gone, or says nothing for five seconds.
    pub fn page(&mut self, page: u32, place: &mut [u8]) -> io::Result<()> {
        self.ask(page, 0)?;
        self.0.read_exact(place)
    }

    /// Has the file streamed into its place, so many times over, and reads it in pieces of so many bytes.
    ///
    /// # Errors
    /// As [`Client::page`].
    pub fn stream(&mut self, bytes: u32, laps: u32, place: &mut [u8]) -> io::Result<()> {
        self.ask(bytes, laps)?;
        for _ in 0..laps {
            place.chunks_mut(bytes as usize).try_for_each(|piece| self.0.read_exact(piece))?;
        }
        Ok(())
    }

    fn ask(&mut self, number: u32, laps: u32) -> io::Result<()> {
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&number.to_le_bytes());
        request[4..].copy_from_slice(&laps.to_le_bytes());
        self.0.write_all(&request)
    }
}

/// Where the serving process waits for the other one.
#[derive(Debug)]
pub struct Door(UnixListener);

impl Door {
    /// Listens in the folder of this setup, which exists.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(setup: &Setup) -> io::Result<Self> {
        let listener = UnixListener::bind(path(setup))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// The other process, which is this one's parent; none if it does not come, or has died.
    #[must_use]
    pub fn let_in(self, parent: Option<Pid>) -> Option<UnixStream> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && getppid() == parent {
            match self.0.accept() {
                Ok((stream, _)) => {
                    let set = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                    return set.is_ok().then_some(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                Err(_) => return None,
            }
        }
        None
    }
}

/// Answers requests for pages of this file until the other process goes, or asks for what there is not.
pub fn serve(mut stream: UnixStream, file: &[u8]) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        let [number, laps] =
            [&request[..4], &request[4..]].map(|word| u32::from_le_bytes(word.try_into().unwrap_or([0; 4])));
        if answer(&mut stream, file, number, laps).is_err() {
            return;
        }
    }
}

fn answer(stream: &mut UnixStream, file: &[u8], number: u32, laps: u32) -> io::Result<()> {
    if laps == 0 {
        return match &file[source::page(number as usize, file.len())] {
            [] => Err(io::ErrorKind::InvalidInput.into()),
            page => stream.write_all(page),
        };
    }
    for _ in 0..laps {
        file.chunks(number.max(1) as usize).try_for_each(|piece| stream.write_all(piece))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_streams_come_as_they_are_and_nonsense_ends_it() {
        let file: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 / 8).to_le_bytes()[0]).collect();
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        std::thread::scope(|scope| {
            scope.spawn(|| serve(theirs, &file));
            let mut client = Client(ours);
            let mut place = vec![0; 10_000 - 8192];
            client.page(2, &mut place).expect("the last page");
            assert!(place == file[8192..]);
            let mut place = vec![0; 10_000];
            client.stream(3000, 3, &mut place).expect("the file");
            assert!(place == file);
            assert!(client.page(3, &mut [0]).is_err());
        });
    }

    #[test]
    fn who_reads_nothing_is_not_waited_for_for_ever() {
        let folder = std::env::temp_dir().join(format!("cutthrough-demo-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let setup = Setup {
            folder: folder.clone(),
            core: None,
            policy: String::new(),
            staging_bytes: 0,
            memory_bytes: 0,
            socket: true,
            file_bytes: 0,
        };
        let door = Door::open(&setup).expect("a door");
        let mut client = Client::connect(&setup).expect("it listens");
        let stream = door.let_in(getppid()).expect("it comes");
        std::fs::remove_dir_all(folder).expect("the folder");
        assert_eq!(stream.write_timeout().expect("a setting"), Some(PATIENCE));
        // The same, sooner.
        stream.set_write_timeout(Some(Duration::from_millis(20))).expect("a setting");
        client.ask(1 << 20, u32::MAX).expect("a request");
        serve(stream, &vec![0; 1 << 20]);
    }
}
