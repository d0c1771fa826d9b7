# Targets `leeward::leeward` (shared) and `leeward::static`.
get_filename_component(_leeward_lib "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
get_filename_component(_leeward_include "${_leeward_lib}/../include" ABSOLUTE)
if(NOT EXISTS "${_leeward_include}/leeward.h")
    # In a Debian package the libraries' folder has the machine's name in it.
    get_filename_component(_leeward_include "${_leeward_lib}/../../include" ABSOLUTE)
endif()
if(NOT TARGET leeward::leeward)
    add_library(leeward::leeward SHARED IMPORTED)
    set_target_properties(leeward::leeward PROPERTIES
        IMPORTED_LOCATION "${_leeward_lib}/libleeward.so"
        INTERFACE_INCLUDE_DIRECTORIES "${_leeward_include}")
    add_library(leeward::static STATIC IMPORTED)
    set_target_properties(leeward::static PROPERTIES
        IMPORTED_LOCATION "${_leeward_lib}/libleeward.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_leeward_include}"
        INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
