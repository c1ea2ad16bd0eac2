"""Which of these tests `make test` runs: those whose promise no faster test shows.

Each starts processes of a user, so all of them take minutes: `make soak` runs all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

WHOLE: Final = {
    "test_an_input_is_never_executed",
    "test_labels_and_status_show_no_control_characters",
    "test_no_response_repeats_a_token_or_a_key_or_names_the_library",
}
"""Run with every parameter."""

FIRST: Final = {
    "test_a_budget_holds_in_a_random_case",
    "test_a_command_that_enlarges_its_pipe_loses_no_output",
    "test_a_disk_that_becomes_full_loses_nothing",
    "test_a_harmless_template_passes_an_input_as_it_is",
    "test_a_kill_at_the_start_of_an_effect_leaves_its_payload_whole",
    "test_a_model_name_that_is_too_long_is_a_bad_request",
    "test_a_plan_of_an_unknown_provider_is_refused",
    "test_a_signal_ends_a_run_in_any_state",
    "test_a_token_renewed_in_the_middle_of_a_run_finds_what_was_used_of_the_window",
    "test_a_zero_byte_in_an_item_is_refused_with_its_place",
    "test_a_row_comes_back_with_its_result_in_its_place",
    "test_a_running_command_waits_for_no_permit_and_waiting_tasks_say_why",
    "test_a_sample_is_forecast_and_asked_about_and_the_rest_pays_for_it_once",
    "test_after_kills_rows_are_whole_in_order_and_paid_once_but_for_those_in_flight",
    "test_agents_are_started_without_any_option_that_gives_rights",
    "test_an_answer_that_breaks_is_counted_as_what_was_paid",
    "test_calls_in_flight_at_a_kill_count_at_their_ceiling_in_a_runs_tokens",
    "test_calls_of_commands_say_unknown_and_commands_without_calls_nothing",
    "test_check_and_run_refuse_an_output_behind_a_link_and_outside_allows_it",
    "test_codex_is_paced_however_it_is_started",
    "test_errors_are_json_where_json_is_asked_for",
    "test_every_view_agrees_with_the_others_and_with_the_provider",
    "test_functions_that_are_not_there_are_refused_with_their_places",
    "test_no_call_is_lost_while_a_provider_restarts",
    "test_no_verb_lets_text_give_orders_to_a_terminal",
    "test_tasks_of_plans_do_not_time_out_while_their_calls_wait",
    "test_results_are_those_of_final_tasks_and_prompts_are_shown_on_request",
    "test_the_end_of_a_run_is_eight_lines_at_most_with_failures_by_cause",
    "test_the_same_fatal_answer_stops_the_use_of_the_account",
    "test_the_variables_of_the_system_and_of_headway_choose_folders",
    "test_two_organisations_of_one_person_are_two_accounts",
    "test_two_interrupts_end_a_program_that_maps",
    "test_what_is_spoilt_is_noticed_and_done_again",
}
"""Run with the first parameter."""

HERE: Final = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.path.parent != HERE or item.get_closest_marker("soak") is not None:
            continue
        name = item.name.partition("[")[0]
        if name not in WHOLE and (name not in FIRST or name in seen):
            item.add_marker(pytest.mark.soak)
        seen.add(name)
