//! Two publish/subscribe services that join the client and the server for one message size.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as PublishSubscribe;

/// The length of the message that ends a phase; every measured message is longer.
const END_LEN: usize = 1;
/// How long either side waits for the other to come or to go.
const PATIENCE: Duration = Duration::from_secs(20);

type Bytes = PublishSubscribe<ipc::Service, [u8], ()>;

/// Which end of the link this process is.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// Answers.
    Server,
    /// Measures.
    Client,
}

/// What the processes do with the bytes of a message.
#[derive(Clone, Copy)]
pub(crate) enum Touch {
    /// Sender copies them in from private memory, receiver copies them out to private memory.
    Copied,
    /// Sender copies them in from private memory, receiver leaves them where they are.
    Written,
    /// Nobody touches them.
    Untouched,
}

/// What came in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// One measured message.
    Message,
    /// The end of the phase.
    End,
}

/// One end of a link for messages of one size.
pub(crate) struct Link {
    /// Payload bytes of a message.
    pub(crate) size: usize,
    touch: Touch,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    outbound: Bytes,
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
}

/// Messages that may wait in a queue: deep enough to stream, and little enough to stay in the caches where it can.
fn queue_len(size: usize) -> usize {
    ((16 << 20) / size).clamp(4, 256)
}

fn open_service(node: &Node<ipc::Service>, name: &str, size: usize) -> Result<Bytes, Box<dyn Error>> {
    Ok(node
        .service_builder(&name.try_into()?)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(1)
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(queue_len(size))
        .subscriber_max_borrowed_samples(2)
        .history_size(0)
        .open_or_create()?)
}

/// Spins until `ready` says so.
///
/// # Errors
/// When the other side took longer than [`PATIENCE`].
fn await_peer(mut ready: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > PATIENCE {
            return Err("the other side did not come".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

impl Link {
    /// Opens this side of the link and waits for the other one.
    ///
    /// # Errors
    /// When a service or port cannot be made, or the other side stays away.
    pub(crate) fn open(
        node: &Node<ipc::Service>,
        side: Side,
        size: usize,
        touch: Touch,
    ) -> Result<Self, Box<dyn Error>> {
        let to_server = open_service(node, &format!("{size}/to-server"), size)?;
        let to_client = open_service(node, &format!("{size}/to-client"), size)?;
        let (outbound, inbound) = match side {
            Side::Server => (to_client, to_server),
            Side::Client => (to_server, to_client),
        };
        let subscriber = inbound.subscriber_builder().create()?;
        let publisher = outbound
            .publisher_builder()
            .initial_max_slice_len(size)
            .max_loaned_samples(2)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        await_peer(|| outbound.dynamic_config().number_of_subscribers() == 1)?;
        await_peer(|| inbound.dynamic_config().number_of_publishers() == 1)?;
        let (outgoing, incoming) = (vec![1; size], vec![2; size]);
        Ok(Self { size, touch, outgoing, incoming, outbound, publisher, subscriber })
    }

    /// Sends one message, waiting while the queue is full.
    ///
    /// # Errors
    /// What iceoryx2 reports.
    pub(crate) fn send(&self) -> Result<(), Box<dyn Error>> {
        let loan = self.publisher.loan_slice_uninit(self.size)?;
        let sample = match self.touch {
            Touch::Copied | Touch::Written => loan.write_from_slice(&self.outgoing),
            // SAFETY: the loan lies in shared memory that the kernel handed out zeroed, so each byte holds a value.
            Touch::Untouched => unsafe { loan.assume_init() },
        };
        sample.send()?;
        Ok(())
    }

    /// Ends the phase for the other side.
    ///
    /// # Errors
    /// What iceoryx2 reports.
    pub(crate) fn send_end(&self) -> Result<(), Box<dyn Error>> {
        self.publisher.loan_slice_uninit(END_LEN)?.write_from_slice(&[0; END_LEN]).send()?;
        Ok(())
    }

    /// Polls until something arrives.
    ///
    /// # Errors
    /// What iceoryx2 reports.
    pub(crate) fn receive(&mut self) -> Result<Arrival, Box<dyn Error>> {
        let sample = loop {
            if let Some(sample) = self.subscriber.receive()? {
                break sample;
            }
        };
        if sample.payload().len() == END_LEN {
            return Ok(Arrival::End);
        }
        if matches!(self.touch, Touch::Copied) {
            self.incoming.copy_from_slice(sample.payload());
            black_box(self.incoming.as_ptr());
        }
        Ok(Arrival::Message)
    }

    /// Waits until the other side has closed its end, so that it has read all that was sent.
    pub(crate) fn await_peer_gone(&self) {
        let start = Instant::now();
        while self.outbound.dynamic_config().number_of_subscribers() > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
