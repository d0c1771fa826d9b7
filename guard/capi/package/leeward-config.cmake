# Targets `leeward::leeward` (shared) and `leeward::static`.
get_filename_component(_leeward_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
# In a Debian package the libraries' folder has the machine's name in it.
find_path(_leeward_include leeward.h PATHS "${_leeward_lib}/../include" "${_leeward_lib}/../../include" NO_DEFAULT_PATH)
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
