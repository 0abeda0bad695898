//! The behaviours, in the order in which a reader of the interface meets them.
#![expect(clippy::missing_panics_doc, reason = "a behaviour panics if an endpoint breaks its promise: that is its use")]

pub mod arriving;
pub mod asked;
pub mod channels;
pub mod control;
pub mod forward;
pub mod midway;
pub mod model;
pub mod opening;
pub mod pages;
pub mod paths;
pub mod recall;
pub mod room;
pub mod tokens;
pub mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cutthrough::Config;

use crate::join::PATIENCE;

/// Settings of the suite: rings small enough that they wrap often, pools that hold the longest payload twice. Nobody
/// dies in it, so a machine that stands still for a second ends no channel.
#[must_use]
pub fn config() -> Config {
    Config { slots: 64, staging_bytes: 64 << 10, silence: Duration::from_secs(5), ..Config::default() }
}

/// Fails if that takes too long; in a runtime that has a clock.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

/// Runs `ours` in a runtime of one thread, beside `theirs` on a thread of its own, which is told when that is over.
fn beside_tokio(theirs: impl FnOnce(&AtomicBool) + Send, ours: impl Future<Output = ()>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| theirs(&over));
        // Also if this side fails.
        let _ends = Ends(&over);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        runtime.expect("a runtime").block_on(ours);
    });
}

/// Tells another thread that it is over.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a `#[test]` of every behaviour, over one way of joining endpoints; or of those of some modules alone.
#[macro_export]
macro_rules! suite {
    ($join:expr) => {
        $crate::suite!($join; opening, control, paths, pages, forward, recall, tokens, arriving, channels, waiting,
            room, asked, midway, model);
    };
    ($join:expr; $($module:ident),+) => {
        $( $crate::suite!(@$module $join); )+
    };
    (@opening $join:expr) => {
        $crate::suite!(@tests $join;
            opening { a_channel_opens_while_both_poll, a_sleeping_caller_is_woken, several_channels_open_at_once,
                nobody_at_an_address_is_told, a_call_that_was_given_up_is_not_told, a_channel_opens_in_tokio,
                a_channel_opens_in_tokio_behind_many, what_was_granted_is_kept_while_a_channel_opens,
                a_flood_waits_while_a_channel_opens_in_tokio });
    };
    (@control $join:expr) => {
        $crate::suite!(@tests $join;
            control { in_order_once_and_whole, too_long_is_refused, a_full_ring_says_so_and_recovers,
                an_unsent_message_was_never_there, both_directions_at_once,
                an_endpoint_that_is_shown_tells_no_message });
    };
    (@paths $join:expr) => {
        $crate::suite!(@tests $join;
            paths { by_reference, by_reference_in_lists, lists_of_many_runs, a_list_longer_than_its_ring_is_refused,
                a_list_waits_for_room, the_longest_payload,
                too_many_small_pages_are_passed_over, put_from_the_free_queue, put_into_several_runs, put_by_token,
                copied_by_token_into_pages, copied_by_token_into_pages_by_the_sender, fetched_by_token_into_memory,
                cut_through, cut_through_by_token, every_page_size, every_policy, streams_of_many_lengths,
                what_lands_elsewhere_is_not_forged });
    };
    (@pages $join:expr) => {
        $crate::suite!(@tests $join;
            pages { the_free_queue_refills_by_drop, the_free_queue_refills_by_release,
                a_payload_in_pages_can_be_read_often,
                a_payload_released_unread_is_gone, a_detached_payload_keeps_its_pages, a_released_page_completes,
                what_is_out_at_the_end_never_completes,
                a_frozen_page_is_sent_again_and_again,
                frozen_pages_are_lent_up_to_a_bound,
                private_memory_completes_at_once, unsent_pages_go_back, foreign_pages_are_refused,
                an_empty_list_is_no_payload, an_empty_pool_says_so, a_thousand_lists_of_pages,
                pages_without_room_to_land_come_all_the_same });
    };
    (@forward $join:expr) => {
        $crate::suite!(@tests $join;
            forward { what_was_received_is_sent_on, what_was_received_is_sent_on_to_many,
                what_was_received_is_sent_on_without_pages, what_is_sent_on_may_be_dropped,
                what_was_received_outlives_its_channel });
    };
    (@recall $join:expr) => {
        $crate::suite!(@tests $join;
            recall { what_is_posted_is_taken_back, numbers_of_what_was_posted_come_back,
                who_sleeps_gives_back_what_was_posted, who_holds_on_to_what_was_posted_keeps_nobody,
                what_is_posted_is_taken_back_beneath_a_stream });
    };
    (@tokens $join:expr) => {
        $crate::suite!(@tests $join;
            tokens { a_token_is_good_once, a_revoked_token_drops_the_payload, a_wrong_key_drops_the_payload,
                a_foreign_index_drops_the_payload, a_payload_too_long_for_its_token_is_dropped,
                revoking_gives_the_memory_back, what_was_granted_comes_back_when_the_peer_is_gone,
                the_table_of_tokens_is_bounded, pages_round_up });
    };
    (@arriving $join:expr) => {
        $crate::suite!(@tests $join;
            arriving { a_payload_dropped_unread_is_gone, a_payload_left_unread_waits,
                a_long_payload_left_unread_does_not_hold_its_sender,
                a_payload_as_long_as_the_ring_does_not_hold_its_sender,
                control_messages_pass_an_arriving_payload, both_sides_send_at_once,
                both_sides_send_at_once_behind_many_messages, early_notice_only_grows,
                early_notice_survives_being_set_aside, nothing_overtakes_a_payload_on_its_way,
                a_sleeping_reader_has_told_how_far_it_is, a_payload_is_read_where_it_came,
                short_payloads_are_whole_whatever_becomes_of_others });
    };
    (@channels $join:expr) => {
        $crate::suite!(@tests $join;
            channels { closing_delivers_everything_first, closing_delivers_what_waited_behind_a_payload,
                who_closes_hears_nothing_more, who_stops_listening_keeps_its_channels,
                what_had_arrived_can_be_read_after_the_end,
                two_channels_between_the_same_endpoints, who_has_most_to_do_with_one_hears_the_others,
                a_thousand_channels, counters_agree, who_sleeps_shows_how_far_it_is, a_closed_channel_says_so,
                a_channel_of_another_endpoint_is_none,
                a_dropped_endpoint_closes_its_channels });
    };
    (@waiting $join:expr) => {
        $crate::suite!(@tests $join;
            waiting { waiting_ends_in_time, a_waker_ends_a_wait,
                no_wake_up_is_lost_in_epoll, who_has_not_slept_for_long_is_woken_at_once,
                no_wake_up_is_lost_in_tokio, a_flood_keeps_no_other_task_waiting,
                no_wake_up_is_lost_by_a_wait_in_between, returned_pages_wake_a_sleeper,
                returned_pages_are_not_slept_over,
                thousands_of_pages_go_back_while_both_sides_sleep, pages_held_back_are_not_slept_over,
                what_is_released_is_not_slept_over, a_payload_dropped_elsewhere_goes_back });
    };
    (@room $join:expr) => {
        $crate::suite!(@tests $join;
            room { room_comes_when_the_receiver_takes, room_is_awaited_in_tokio,
                a_wait_for_room_in_tokio_keeps_no_other_task_waiting, two_that_wait_for_room_go_on,
                who_waits_for_room_holds_others_up_in_the_end, a_wait_for_room_sleeps, a_wait_for_room_ends });
    };
    (@asked $join:expr) => {
        $crate::suite!(@tests $join;
            asked { room_is_told_of_when_it_comes, room_is_told_of_in_tokio, room_of_several_channels_is_told_of_each,
                room_is_told_of_once, room_that_is_asked_for_again_is_told_of_once, who_has_asked_for_room_sleeps,
                room_of_an_ended_channel_is_not_told_of });
    };
    (@midway $join:expr) => {
        $crate::suite!(@tests $join;
            midway { a_read_in_tokio_keeps_no_other_task_waiting, a_read_in_tokio_of_what_was_set_aside,
                a_read_in_tokio_empties_a_full_ring,
                a_read_in_tokio_ends_with_its_sender });
    };
    (@model $join:expr) => {
        $crate::suite!(@tests $join; model { any_sequence_of_operations });
    };
    (@tests $join:expr; $module:ident { $($behaviour:ident),+ $(,)? }) => {
        mod $module {
            #[allow(unused_imports, reason = "the expression may name anything of the file it is used in")]
            use super::*;
            $(
                #[test]
                fn $behaviour() {
                    let join = $join;
                    if !$crate::Join::skips_all(&join) {
                        $crate::suite::$module::$behaviour(&join);
                    }
                }
            )+
        }
    };
}
